"""How one container's request of one vendor is placed on one node.

`scene` is what a rule sees and what it answers, `checks` the checks of semantics 6.2 by name, `shared`
the walk over devices that most vendors share. Every other file is one peculiarity of semantics 3.3;
a vendor's table names its rule (`fit.rule`) and its score (`fit.score`), see `rules`.
"""
