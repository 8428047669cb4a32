// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

let system = Target.Dependency.product(name: "SystemPackage", package: "swift-system")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")

// Dependencies point one way, downwards in the README's table: a vault and a view do not know each other.
let package = Package(
    name: "vaultfs",
    products: [.executable(name: "vaultfs", targets: ["vaultfs"])],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
        .package(url: "https://github.com/HdrHistogram/hdrhistogram-swift", from: "0.2.0"),
    ],
    targets: [
        .systemLibrary(name: "CFuse", pkgConfig: "fuse3", providers: [.apt(["libfuse3-dev"])]),
        .systemLibrary(name: "COpenSSL", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
        .target(name: "CLinux"),
        .target(name: "VaultCrypto", dependencies: ["COpenSSL", "CLinux"], swiftSettings: settings),
        .target(name: "VaultFormat", dependencies: ["VaultCrypto"], swiftSettings: settings),
        .target(name: "BackingStore", dependencies: ["VaultCrypto", "CLinux", system], swiftSettings: settings),
        .target(
            name: "VaultStore", dependencies: ["BackingStore", "VaultFormat", "VaultCrypto", "CLinux", system],
            swiftSettings: settings),
        .target(
            name: "MountedFileSystem",
            dependencies: ["BackingStore", "LockFiles", "VaultCrypto", "CLinux", system, logging],
            swiftSettings: settings),
        .target(
            name: "VaultFileSystem",
            dependencies: [
                "MountedFileSystem", "LockFiles", "BackingStore", "VaultStore", "VaultFormat", "VaultCrypto", "CLinux",
                system, logging,
            ],
            swiftSettings: settings),
        .target(
            name: "ViewFormats",
            dependencies: ["BackingStore", "VaultFormat", "VaultCrypto", "CLinux", system],
            swiftSettings: settings),
        .target(
            name: "ViewFileSystem",
            dependencies: [
                "MountedFileSystem", "ViewFormats", "BackingStore", "VaultCrypto", "CLinux", system, logging,
            ],
            swiftSettings: settings),
        .target(
            name: "ViewExport",
            dependencies: ["ViewFormats", "BackingStore", "VaultCrypto", "CLinux", system], swiftSettings: settings),
        .target(
            name: "VaultTransfer",
            dependencies: [
                "VaultFileSystem", "MountedFileSystem", "BackingStore", "VaultStore", "VaultFormat", "VaultCrypto",
                "CLinux", system,
            ],
            swiftSettings: settings),
        .target(
            name: "FuseSession",
            dependencies: ["BackingStore", "MountedFileSystem", "VaultFileSystem", "CFuse", "CLinux", system, logging],
            swiftSettings: settings),
        .target(name: "LockFiles", dependencies: ["CLinux", system], swiftSettings: settings),
        .target(
            name: "VaultControl", dependencies: ["VaultFormat", "VaultCrypto", "CLinux", system],
            swiftSettings: settings),
        .executableTarget(
            name: "vaultfs",
            dependencies: [
                "FuseSession", "MountedFileSystem", "VaultFileSystem", "ViewFileSystem", "ViewExport", "ViewFormats",
                "VaultTransfer", "LockFiles",
                "BackingStore",
                "VaultStore",
                "VaultFormat", "VaultCrypto",
                "VaultControl", "CLinux", system, logging,
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Histogram", package: "hdrhistogram-swift"),
            ],
            swiftSettings: settings),
        .executableTarget(
            name: "null-server",
            dependencies: [
                "FuseSession", "MountedFileSystem", "BackingStore", "VaultCrypto", "CLinux", system, logging,
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Benchmarks/NullServer", swiftSettings: settings),
        .executableTarget(
            name: "vaultfs-micro",
            dependencies: [
                "BackingStore", "VaultFormat", "VaultCrypto", system,
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Benchmarks/Micro", swiftSettings: settings),
        .target(name: "CallWatch", path: "Tests/CallWatch"),
        .target(
            name: "TestSupport", dependencies: ["CallWatch", "CLinux", system], path: "Tests/TestSupport",
            swiftSettings: settings
        ),
        .testTarget(
            name: "VaultCryptoTests", dependencies: ["VaultCrypto", "CLinux", "TestSupport"], swiftSettings: settings),
        .testTarget(
            name: "VaultFormatTests", dependencies: ["VaultFormat", "VaultCrypto", "TestSupport"],
            swiftSettings: settings),
        .testTarget(
            name: "BackingStoreTests", dependencies: ["BackingStore", "CLinux", "TestSupport", system],
            swiftSettings: settings),
        .testTarget(
            name: "VaultStoreTests",
            dependencies: [
                "BackingStore", "VaultStore", "VaultFormat", "VaultCrypto", "CLinux", "TestSupport", system,
            ],
            swiftSettings: settings),
        .testTarget(
            name: "VaultFileSystemTests",
            dependencies: [
                "MountedFileSystem", "VaultFileSystem", "LockFiles", "BackingStore", "VaultStore", "VaultFormat",
                "VaultCrypto", "CLinux", "TestSupport",
                system, logging,
            ],
            swiftSettings: settings),
        .testTarget(
            name: "ViewFormatsTests",
            dependencies: [
                "ViewFormats", "BackingStore", "VaultStore", "VaultFormat", "VaultCrypto", "CLinux", "TestSupport",
                system,
            ],
            swiftSettings: settings),
        .testTarget(
            name: "ViewFileSystemTests",
            dependencies: [
                "ViewFileSystem", "ViewFormats", "MountedFileSystem", "BackingStore", "VaultCrypto", "TestSupport",
                system, logging,
            ],
            swiftSettings: settings),
        .testTarget(
            name: "ViewExportTests",
            dependencies: [
                "ViewExport", "ViewFormats", "BackingStore", "VaultCrypto", "CLinux", "TestSupport", system,
            ],
            swiftSettings: settings),
        .testTarget(
            name: "VaultTransferTests",
            dependencies: [
                "vaultfs", "VaultTransfer", "VaultFileSystem", "VaultStore", "VaultFormat", "VaultCrypto",
                "BackingStore", "CLinux", "TestSupport", system,
            ],
            swiftSettings: settings),
        .testTarget(
            name: "FuseSessionTests",
            dependencies: [
                "vaultfs", "FuseSession", "MountedFileSystem", "VaultFileSystem", "BackingStore", "VaultStore",
                "VaultFormat", "CLinux", "TestSupport", system,
                logging,
            ],
            swiftSettings: settings),
        .testTarget(
            name: "LockFilesTests", dependencies: ["LockFiles", "CLinux", "TestSupport", system],
            swiftSettings: settings),
        .testTarget(
            name: "VaultControlTests",
            dependencies: ["VaultControl", "VaultFormat", "VaultCrypto", "TestSupport", system],
            swiftSettings: settings),
        .testTarget(
            name: "CommandLineTests",
            dependencies: [
                "vaultfs", "VaultControl", "VaultStore", "VaultFormat", "VaultCrypto", "TestSupport", system,
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "MountTests", dependencies: ["vaultfs", "TestSupport", "CLinux", system], swiftSettings: settings),
    ]
)
