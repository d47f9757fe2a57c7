"""`manage.py adopt-cluster`. A name with a dash is no module's; what there is to check is in `adopting`."""  # noqa: N999

from hamiacct.management.adopting import Command

__all__ = ["Command"]
