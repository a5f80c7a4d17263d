"""The process and its outputs; no operator is known here."""
