"""The same fit over columns: every node of a fleet at once. `fit.place` is the definition (semantics 6).

A column is an array of cards by nodes, so each check is one comparison of all cards of all nodes, and
the walk over containers is done by all nodes together. Four observations make it short:

* On a node that refuses, every card was looked at; on one that takes the pod, reasons are not told. So
  the order of cards matters only where a later container finds what was picked, where quotas are in
  reach, and with numa-bind.
* How often each reason was met on a node is one number, a few bits per reason: the sum over its cards.
  Nodes with the same number have the same message, which is written once.
* The score of a node does not depend on the pod, so the best are tried first.
* Where a verdict is not asked for, none is made: while nodes are tried best first, all that is kept of
  one that refuses is that it does.

What is not vectorised goes to `fit.place`, node by node: cards with MIG room, vendors with rules or
scores of their own, and what is named in `walk.Walk.is_plain`. The candidates that are told are drawn from
the columns, too, where the walk is the shared one (`drawing.is_drawn`): its picks are all there is to a
placement.

`arrays` has the types and their limits, `signatures` reasons as numbers, `inventory` what nodes registered,
`columns` that and what is used of it, `walk` one pod on many nodes, `drawing` placements, `copies` one pod
many times, `trial` one question.
"""

from hamiacct.accounting.fleet.fleet import Fleet
from hamiacct.accounting.fleet.inventory import Register
from hamiacct.accounting.fleet.scores import device_scores, node_scores
from hamiacct.accounting.fleet.verdicts import Judgement, Refusal

__all__ = ["Fleet", "Judgement", "Refusal", "Register", "device_scores", "node_scores"]
