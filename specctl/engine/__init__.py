"""The draft–verify loop and what it needs."""
