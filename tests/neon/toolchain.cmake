# Cross-compilation for AArch64 with Debian's compiler; programs run under qemu.
# POSENC_SYSROOT: where neon.sh has unpacked the libraries.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES POSENC_SYSROOT)
set(CMAKE_FIND_ROOT_PATH ${POSENC_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Headers of OpenSSL that differ between architectures.
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES
    ${POSENC_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
# The C library is the cross-compiler's; the others are the sysroot's.
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -L /usr/aarch64-linux-gnu -E
    LD_LIBRARY_PATH=${POSENC_SYSROOT}/usr/lib/aarch64-linux-gnu)
