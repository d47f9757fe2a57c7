"""Reads. They never write and never open a transaction."""
