"""`python -m specctl`: the same door as the `specctl` command."""

from specctl.cli.app import main

if __name__ == "__main__":
    main()
