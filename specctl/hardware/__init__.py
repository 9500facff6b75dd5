"""What this machine is: one snapshot, each probe fallible on its own."""
