"""verify FOLDER tensors.json: compares a converted folder with known hashes."""

import sys

from hf_convert import folder
from hf_convert.errors import ConvertError


def main():
    """Exits non-zero, with the first tensor that differs, when the folder is not as expected."""
    try:
        folder.verify(sys.argv[1], sys.argv[2])
    except (ConvertError, OSError, ValueError) as error:
        print(f"verify: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
