from hypothesis import settings

# A busy machine must not fail a test: time limits are pytest's.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
