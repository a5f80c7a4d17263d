"""Why a call is what it is: `explain_call` tries its rules one by one, `no_route` words the error of a call without a route."""
