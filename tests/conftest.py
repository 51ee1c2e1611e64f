"""Settings for all tests: no deadline for an example, as machines are noisy.

The examples are the same in every run, so that a failure is one of the change at hand; with
CLEW_FUZZ=1 in the environment new ones are drawn.
"""

import os

from hypothesis import settings

settings.register_profile("clew", deadline=None, derandomize="CLEW_FUZZ" not in os.environ)
settings.load_profile("clew")
