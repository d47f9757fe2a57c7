"""The HTTP interface: parse, one call, shape. Every path is in `urls`, every error in `errors`."""
