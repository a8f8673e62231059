"""What stands here: for bug reports and for reports of fits."""

import importlib.metadata
import platform
import sys

LIBRARIES = ("probml", "jax", "jaxlib", "numpyro", "optax", "numpy", "scipy", "pandas", "networkx",
             "narwhals", "scikit-learn", "arviz", "matplotlib", "pyarrow", "polars", "click")


def show_versions(show: bool = True) -> dict[str, str]:
    """The versions of Python, of probml and of the libraries that it uses, and the devices and
    precision of JAX; "absent" for libraries that are not installed.

    Args:
        show: print them, too.
    """
    import jax

    versions = {"python": sys.version.split()[0], "system": platform.platform(terse=True)}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    devices = [f"{device.platform}:{device.id}" for device in jax.devices()]
    versions["devices"] = ", ".join(devices)
    versions["precision"] = "float64" if jax.config.jax_enable_x64 else "float32"
    if show:
        print("\n".join(f"{name:14} {text}" for name, text in versions.items()))
    return versions
