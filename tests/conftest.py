"""What holds for all tests."""

from hypothesis import settings

# The same examples in every run, so that a failure is the change's and not the day's; `make fuzz`
# looks for new ones.
settings.register_profile("reproducible", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile("reproducible")
