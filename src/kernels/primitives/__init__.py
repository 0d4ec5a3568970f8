"""The smallest kernels that show whether a platform has a cast, a load, a dot or an atomic."""
