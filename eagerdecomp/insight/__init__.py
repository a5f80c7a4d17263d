"""What a program did: blame, comparison, profiles."""
