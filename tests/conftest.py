"""Settings for all tests: no deadline for an example, as machines are noisy."""

from hypothesis import settings

settings.register_profile("clew", deadline=None)
settings.load_profile("clew")
