"""The smallest change that makes a provider accept a history."""
