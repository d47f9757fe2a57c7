"""In English, which the admin speaks."""
