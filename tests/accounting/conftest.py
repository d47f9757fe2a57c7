"""Random examples may take their time: a busy machine is no fault of the rule."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
