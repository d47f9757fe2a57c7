"""To the second, and of which zone: what was first, and when, is the question that a time answers here."""

DATETIME_FORMAT = "Y-m-d H:i:s T"
