"""`python -m dwac` is the command `dwac`."""

from dwac.cli import main

if __name__ == "__main__":
    main()
