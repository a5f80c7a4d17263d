"""Choose the rules of an op, their order and their cost.

- `planner`: decides for each op.
- `closure`: computes which ops have a route to a set, and the cheapest rules.
- `rule_calls`: recorded data about the ops that each rule calls.
"""
