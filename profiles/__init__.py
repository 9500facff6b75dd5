"""Model profiles as data: one TOML file a target family (mounted as specctl.profiles)."""
