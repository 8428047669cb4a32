"""The list of the package's parts, with versions and licences: an SPDX 2.3 document, in JSON, on standard output.

usage: spdx.py VERSION ARCHITECTURE SWIFT LIBRARIES <Package.resolved

VERSION and ARCHITECTURE are those of the package, SWIFT is the version of the compiler, LIBRARIES the dependencies that
dpkg-shlibdeps(1) found. The creation time is SOURCE_DATE_EPOCH, so the same arguments make the same document.
"""

import hashlib
import json
import os
import re
import sys
import time

APACHE = "Apache-2.0"
# The Runtime Library Exception.
APACHE_WITH_EXCEPTION = "Apache-2.0 WITH Swift-exception"
APPLE = "Apple Inc. and the Swift project authors"

# The licence and the holder of the copyright of each Swift package that the program contains.
PACKAGES = {
    "swift-argument-parser": (APACHE_WITH_EXCEPTION, f"2020 {APPLE}"),
    "swift-log": (APACHE, "2018-2026 Apple Inc. and the Swift Logging API project authors"),
    "swift-system": (APACHE_WITH_EXCEPTION, "2020-2026 Apple Inc. and the Swift System project authors"),
}
# The same for the parts of the compiler's distribution that the program contains.
RUNTIME = {
    "swift": (APACHE_WITH_EXCEPTION, f"2014-2026 {APPLE}"),
    "swift-corelibs-libdispatch": (APACHE_WITH_EXCEPTION, f"2008-2026 {APPLE}"),
    "swift-foundation": (APACHE_WITH_EXCEPTION, f"2014-2026 {APPLE}"),
}
# The licences of the libraries that the program loads, by the name of the Debian package.
LIBRARIES = {
    "libc6": "LGPL-2.1-or-later",
    "libfuse3-": "LGPL-2.1-only",
    "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libssl3": APACHE,
    "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
}


def stop(reason):
    sys.exit(f"spdx.py: {reason}")


def package(name, version, license_, location="NOASSERTION", copyright_="NOASSERTION", purl=None, **more):
    entry = {
        "name": name,
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "versionInfo": version,
        "downloadLocation": location,
        "filesAnalyzed": False,
        "licenseConcluded": license_,
        "licenseDeclared": license_,
        "copyrightText": copyright_,
        **more,
    }
    if purl:
        reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
        entry["externalRefs"] = [reference]
    return entry


def swift_packages(resolved):
    for pin in sorted(resolved["pins"], key=lambda pin: pin["identity"]):
        name, state = pin["identity"], pin["state"]
        if name not in PACKAGES:
            stop(f"the licence of {name} is unknown: add it")
        license_, holder = PACKAGES[name]
        location = pin["location"].removesuffix(".git")
        version = state.get("version") or state["revision"]
        yield package(
            name, version, license_, f"git+{location}@{state['revision']}", f"Copyright {holder}",
            f"pkg:swift/{location.split('://')[1]}@{version}", primaryPackagePurpose="LIBRARY")


def runtime(version):
    for name, (license_, holder) in RUNTIME.items():
        yield package(
            name, version, license_, f"git+https://github.com/swiftlang/{name}@swift-{version}-RELEASE",
            f"Copyright {holder}", f"pkg:swift/github.com/swiftlang/{name}@{version}", primaryPackagePurpose="LIBRARY")


def libraries(dependencies):
    for dependency in sorted(dependencies.split(", ")):
        name, _, version = dependency.partition(" ")
        known = [license_ for prefix, license_ in LIBRARIES.items() if name.startswith(prefix)]
        if not known:
            stop(f"the licence of {name} is unknown: add it")
        yield package(
            name, version.strip("(>= )") or "NOASSERTION", known[0], purl=f"pkg:deb/debian/{name}",
            primaryPackagePurpose="LIBRARY", comment="Not in this package. The version is the least that it needs.")


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__.strip())
    version, architecture, swift, dependencies = sys.argv[1:]
    program = package(
        "vaultfs", version, "MIT", copyright_="Copyright 2026 the vaultfs authors",
        purl=f"pkg:deb/vaultfs@{version}?arch={architecture}", primaryPackagePurpose="APPLICATION",
        supplier="Organization: the vaultfs authors")
    contained = [*swift_packages(json.load(sys.stdin)), *runtime(swift)]
    loaded = list(libraries(dependencies))
    links = [("STATIC_LINK", entry) for entry in contained] + [("DYNAMIC_LINK", entry) for entry in loaded]
    packages = [program, *contained, *loaded]
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"vaultfs_{version}_{architecture}",
        # A name that no other document has, and not a place: the specification asks for a URI.
        "documentNamespace": f"urn:vaultfs:spdx:{version}:{architecture}:{digest}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))),
            "creators": ["Organization: the vaultfs authors", "Tool: scripts/package"],
        },
        "documentDescribes": [program["SPDXID"]],
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": program["SPDXID"]},
            *({"spdxElementId": program["SPDXID"], "relationshipType": kind, "relatedSpdxElement": entry["SPDXID"]}
              for kind, entry in links),
        ],
    }
    json.dump(document, sys.stdout, indent=2)
    print()


main()
