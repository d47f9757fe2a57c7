"""PostgreSQL and Valkey for a developer's machine and for tests: started here, never by the product.

A server is, in this order: the one at the URL given; one of the machine's own programs; the one that a wheel
of the environment brings. Only the programs of the wheels are used, since their own launchers change users
and the modes of folders.
"""
