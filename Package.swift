// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

// Tests run optimized sources, since most of their time is the sources'. Their own code is quicker compiled than run. Only
// tests import them, for fixtures, so no job of its own makes their module first: it took a third of their compilation.
let testSettings =
    settings + [.unsafeFlags(["-Onone", "-no-emit-module-separately-wmo"], .when(configuration: .release))]

// The commit that the program is built from, if the caller names it: SwiftPM may evaluate this file long before it builds.
let commit = (Context.environment["VAULTFS_COMMIT"] ?? "").filter(\.isHexDigit)

let system = Target.Dependency.product(name: "SystemPackage", package: "swift-system")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let arguments = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")

/// A folder of Sources, and one of Tests with the tests of its modules.
enum Tree: String {
    case platform = "Platform"
    case serving = "Serving"
    case vault = "Vault"
    case views = "Views"
    case programs = "Programs"
}

func library(_ tree: Tree, _ name: String, _ dependencies: Target.Dependency...) -> Target {
    .target(
        name: name, dependencies: dependencies, path: "Sources/\(tree.rawValue)/\(name)", swiftSettings: settings)
}

func program(_ name: String, path: String, _ dependencies: Target.Dependency...) -> Target {
    .executableTarget(name: name, dependencies: dependencies, path: path, swiftSettings: settings)
}

func tests(_ tree: Tree, _ name: String, _ dependencies: Target.Dependency...) -> Target {
    .testTarget(
        name: name, dependencies: dependencies, path: "Tests/\(tree.rawValue)/\(name)", swiftSettings: testSettings)
}

// Dependencies point one way, downwards in ARCHITECTURE.md's picture: a vault and a view do not know each other. Packages are
// pinned, because help and completion scripts depend on the argument parser's text.
let package = Package(
    name: "vaultfs",
    products: [.executable(name: "vaultfs", targets: ["vaultfs"])],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
        .package(url: "https://github.com/apple/swift-system", exact: "1.8.1"),
    ],
    targets: [
        .systemLibrary(
            name: "CFuse", path: "Sources/Platform/CFuse", pkgConfig: "fuse3", providers: [.apt(["libfuse3-dev"])]),
        .systemLibrary(
            name: "COpenSSL", path: "Sources/Platform/COpenSSL", pkgConfig: "libcrypto",
            providers: [.apt(["libssl-dev"])]),
        .target(
            name: "CBuild", path: "Sources/Programs/CBuild",
            cSettings: [.define("VAULTFS_COMMIT", to: "\"\(commit)\"")]),
        .target(name: "CLinux", path: "Sources/Platform/CLinux"),
        library(.platform, "LinuxSystem", "CLinux", system),
        library(.platform, "VaultCrypto", "COpenSSL", "CLinux"),
        library(.platform, "StrictJSON", "LinuxSystem"),
        library(.vault, "VaultFormat", "LinuxSystem", "StrictJSON", "VaultCrypto"),
        library(.serving, "FileSystem", "LinuxSystem", "VaultCrypto", "CLinux", system),
        library(.serving, "Locking", "FileSystem", "LinuxSystem", "VaultCrypto", "CLinux", system, logging),
        library(.vault, "VaultStore", "FileSystem", "LinuxSystem", "VaultFormat", "VaultCrypto", "CLinux", system),
        library(
            .vault, "VaultCare", "FileSystem", "VaultStore", "LinuxSystem", "VaultFormat", "VaultCrypto", "CLinux",
            system),
        library(.views, "ViewFormats", "FileSystem", "LinuxSystem", "StrictJSON", "VaultCrypto", "CLinux", system),
        library(
            .vault, "VaultFileSystem", "FileSystem", "Locking", "VaultStore", "LinuxSystem", "VaultFormat",
            "VaultCrypto",
            "CLinux", system),
        library(
            .views, "ViewFileSystem", "FileSystem", "Locking", "ViewFormats", "LinuxSystem", "VaultCrypto", "CLinux",
            system,
            logging),
        library(
            .programs, "Transfer", "VaultFileSystem", "ViewFileSystem", "FileSystem", "VaultStore", "ViewFormats",
            "LinuxSystem",
            "VaultFormat", "VaultCrypto", "CLinux", system),
        library(.serving, "FuseSession", "FileSystem", "Locking", "LinuxSystem", "CFuse", "CLinux", system, logging),
        library(
            .serving, "Control", "Locking", "FileSystem", "LinuxSystem", "VaultCrypto", "CLinux", system),
        library(
            .serving, "Daemon", "FuseSession", "Control", "FileSystem", "Locking", "LinuxSystem", "VaultCrypto",
            "CLinux", system, logging),
        program(
            "vaultfs", path: "Sources/Programs/vaultfs", "Daemon", "FuseSession", "VaultFileSystem", "ViewFileSystem",
            "FileSystem", "Locking", "Transfer",
            "Control", "VaultCare", "VaultStore", "ViewFormats", "LinuxSystem", "VaultFormat", "VaultCrypto", "CBuild",
            "CLinux",
            system, logging, arguments),
        program(
            "secret-file", path: "Sources/Serving/Daemon/Daemon.docc/SecretFile", "Daemon", "FuseSession", "Control",
            "FileSystem", "Locking", "LinuxSystem", "VaultCrypto", system, logging),
        program(
            "null-server", path: "Benchmarks/NullServer", "FuseSession", "FileSystem", "Locking", "LinuxSystem",
            "VaultCrypto", "CLinux", system, logging, arguments),
        program(
            "vaultfs-micro", path: "Benchmarks/Micro", "FileSystem", "LinuxSystem", "VaultFormat", "VaultCrypto",
            arguments),
        .target(name: "CallWatch", path: "Tests/Support/CallWatch"),
        .target(
            name: "TestSupport", dependencies: ["CallWatch", "CLinux"], path: "Tests/Support/TestSupport",
            swiftSettings: settings),
        .target(
            name: "DiskSimulation", dependencies: ["CallWatch", "CLinux", "TestSupport"],
            path: "Tests/Support/DiskSimulation",
            swiftSettings: settings),
        tests(.platform, "LinuxSystemTests", "LinuxSystem", "TestSupport", system),
        tests(.platform, "VaultCryptoTests", "VaultCrypto", "CLinux", "TestSupport"),
        tests(.vault, "VaultFormatTests", "VaultFormat", "LinuxSystem", "VaultCrypto", "TestSupport"),
        tests(.platform, "StrictJSONTests", "StrictJSON"),
        tests(.serving, "FileSystemTests", "FileSystem", "LinuxSystem", "CLinux", "TestSupport"),
        tests(
            .serving, "LockingTests", "Locking", "VaultFileSystemTests", "VaultFileSystem", "FileSystem", "VaultStore",
            "LinuxSystem", "VaultFormat", "VaultCrypto", "CLinux", "TestSupport", system, logging),
        tests(
            .vault, "VaultStoreTests", "VaultStore", "FileSystem", "LinuxSystem", "VaultFormat",
            "VaultCrypto",
            "CLinux",
            "TestSupport", system),
        tests(
            .vault, "VaultCareTests", "VaultStoreTests", "VaultCare", "VaultStore", "LinuxSystem", "VaultFormat",
            "VaultCrypto", "CLinux", "TestSupport", system),
        tests(
            .vault, "VaultFileSystemTests", "VaultFileSystem", "FileSystem", "Locking", "VaultCare", "VaultStore",
            "LinuxSystem",
            "VaultFormat", "VaultCrypto", "CLinux", "TestSupport", "DiskSimulation", system, logging),
        tests(
            .views, "ViewFormatsTests", "ViewFormats", "FileSystem", "LinuxSystem", "VaultCrypto", "TestSupport",
            system),
        tests(
            .views, "ViewFileSystemTests", "ViewFileSystem", "ViewFormats", "FileSystem", "Locking", "LinuxSystem",
            "VaultCrypto", "TestSupport", system, logging),
        tests(
            .programs, "TransferTests", "vaultfs", "Transfer", "VaultFileSystem", "ViewFileSystem", "FileSystem",
            "Locking",
            "VaultCare", "VaultStore", "ViewFormats", "LinuxSystem", "VaultFormat", "VaultCrypto", "CLinux",
            "TestSupport", system,
            logging),
        tests(
            .serving, "FuseSessionTests", "vaultfs", "FuseSession", "FileSystem", "Locking", "VaultFileSystem",
            "VaultStore",
            "LinuxSystem", "VaultFormat", "CLinux", "TestSupport", system, logging),
        tests(
            .serving, "ControlTests", "Control", "Locking", "FileSystem", "LinuxSystem", "VaultCrypto", "TestSupport",
            system),
        tests(
            .serving, "DaemonTests", "Daemon", "Control", "VaultCrypto"),
        tests(
            .programs, "CommandLineTests", "vaultfs", "Daemon", "FuseSession", "LinuxSystem", "Control", "FileSystem",
            "Locking", "VaultCare", "VaultStore",
            "VaultFormat",
            "VaultCrypto", "TestSupport", system, arguments),
        tests(.programs, "MountTests", "vaultfs", "TestSupport"),
    ]
)
