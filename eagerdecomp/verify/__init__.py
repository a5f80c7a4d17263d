"""A call made again beside eager: findings, and scripts that reproduce them."""
