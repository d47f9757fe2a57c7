"""How dates are written, by language; Django finds them by their names (FORMAT_MODULE_PATH)."""
