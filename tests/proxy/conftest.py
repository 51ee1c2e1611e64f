"""Stores of both kinds, as the tests of the store have them."""

from tests.store.conftest import location, migrated, postgres_server, postgres_url

__all__ = ["location", "migrated", "postgres_server", "postgres_url"]
