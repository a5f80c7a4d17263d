"""Which rule of an op, in which order, at what cost.

`planner` decides, `closure` solves which ops a set reaches and by which cheapest rules, `rule_calls` holds what each rule was
seen to call.
"""
