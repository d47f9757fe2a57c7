"""A small cluster to look at: its watch events as recorded, and what sends them through the service."""
