"""What an operator is: schema, op sets, backends, the text of a call."""
