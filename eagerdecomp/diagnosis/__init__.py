"""Explain calls: `explain_call` runs the rules of a call one by one; `no_route` creates the error of a call without a route."""
