"""Why a call is what it is: explanations, and errors for calls without a route."""
