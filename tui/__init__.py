"""The full screen. It takes events and shows them; it never meets an engine."""
