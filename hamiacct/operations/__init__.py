"""Writes. Transactions begin and end here, and nowhere else.

Locks are always taken in this order: the pods of a name, devices by (node, uuid), the namespace,
quotas by name, the ledger head (decision 26).
"""
