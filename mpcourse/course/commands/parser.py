"""Arguments of the command line."""

import argparse
from typing import NoReturn

from mpcourse.common.errors import UserError


class OneLineParser(argparse.ArgumentParser):
    """argparse, whose error is one line that names the command's help."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: see `{self.prog} --help`")
