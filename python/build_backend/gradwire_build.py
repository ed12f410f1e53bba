"""meson-python's hooks but one: for the metadata alone it would compile everything, and then again for the wheel. Without that hook pip
builds the wheel once and reads the metadata in it."""

from mesonpy import (build_editable, build_sdist, build_wheel, get_requires_for_build_editable, get_requires_for_build_sdist,
                     get_requires_for_build_wheel)

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist",
           "get_requires_for_build_wheel"]
