# Packages and wheels for a machine without a network, for ./check --prefetch: sourced by ./check.

# What the build asks for, Meson and Ninja but for programs that are everywhere; UCX and MPI are left out.
prefetch_packages=(libeigen3-dev libgtest-dev libgmock-dev libhwy-dev libxxhash-dev libssl-dev zlib1g-dev libcli11-dev nlohmann-json3-dev
  libtomlplusplus-dev libspdlog-dev libfmt-dev libjs-chart.js pkgconf-bin libpkgconf3)

# prefetch FOLDER: packages and wheels, unpacked; nothing is installed. Libraries are static ones, which any machine can link.
prefetch() {
  local folder=$1 package wheel
  mkdir -p "$folder/packages" "$folder/wheels" "$folder/root" "$folder/bin" "$folder/meson"
  folder=$(cd "$folder" && pwd)
  say "fetching ${prefetch_packages[*]}"
  (cd "$folder/packages" && apt-get download -qq "${prefetch_packages[@]}" 2>/dev/null) ||
    fail "fetching packages failed (are Debian's package lists here? apt-get update)"
  for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$folder/root"; done
  find "$folder/root" -name '*.so*' ! -name 'libpkgconf.so*' -delete
  say "fetching meson and ninja"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$folder/wheels" meson ninja ||
    fail "fetching the Python wheels of meson and ninja failed (it needs a package index)"
  python3 -m zipfile -e "$folder"/wheels/meson-*.whl "$folder/meson"
  python3 -m zipfile -e "$folder"/wheels/ninja-*.whl "$folder/ninja"
  install -m 755 "$(find "$folder/ninja" -path '*/scripts/ninja' -o -path '*/bin/ninja' | head -n 1)" "$folder/bin/ninja"
  local libraries
  libraries=$(dirname "$(find "$folder/root" -name 'libpkgconf.so.3' | head -n 1)")
  printf '#!/bin/sh\nhere=$(dirname "$0")/..\nLD_LIBRARY_PATH="$here/%s" exec "$here/root/usr/bin/pkgconf" "$@"\n' "${libraries#"$folder"/}" \
    >"$folder/bin/pkg-config"
  chmod 755 "$folder/bin/pkg-config"
  rm -rf "$folder/packages" "$folder/wheels" "$folder/ninja"
  echo "${prefetch_packages[*]} meson ninja" >"$folder/prefetched"
  say "fetched into $folder ($(du -sh "$folder" | cut -f1))"
}
