// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

// Tests run optimized sources, since most of their time is the sources'. Their own code is quicker compiled than run.
let testSettings = settings + [.unsafeFlags(["-Onone"], .when(configuration: .release))]

// The commit that the program is built from, if the caller names it: SwiftPM may evaluate this file long before it builds.
let commit = (Context.environment["VAULTFS_COMMIT"] ?? "").filter(\.isHexDigit)

let system = Target.Dependency.product(name: "SystemPackage", package: "swift-system")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let arguments = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")

func library(_ name: String, _ dependencies: Target.Dependency...) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: settings)
}

func program(_ name: String, path: String? = nil, _ dependencies: Target.Dependency...) -> Target {
    .executableTarget(name: name, dependencies: dependencies, path: path, swiftSettings: settings)
}

func tests(_ name: String, _ dependencies: Target.Dependency...) -> Target {
    .testTarget(name: name, dependencies: dependencies, swiftSettings: testSettings)
}

// Dependencies point one way, downwards in ARCHITECTURE.md's picture: a vault and a view do not know each other.
let package = Package(
    name: "vaultfs",
    products: [.executable(name: "vaultfs", targets: ["vaultfs"])],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
    ],
    targets: [
        .systemLibrary(name: "CFuse", pkgConfig: "fuse3", providers: [.apt(["libfuse3-dev"])]),
        .systemLibrary(name: "COpenSSL", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
        .target(name: "CBuild", cSettings: [.define("VAULTFS_COMMIT", to: "\"\(commit)\"")]),
        .target(name: "CLinux"),
        library("LinuxSystem", "CLinux", system),
        library("VaultCrypto", "COpenSSL", "CLinux"),
        library("StrictJSON", "LinuxSystem"),
        library("VaultFormat", "LinuxSystem", "StrictJSON", "VaultCrypto"),
        library("FileSystem", "LinuxSystem", "VaultCrypto", "CLinux", system),
        library("Locking", "FileSystem", "LinuxSystem", "VaultCrypto", "CLinux", system, logging),
        library("VaultStore", "FileSystem", "LinuxSystem", "VaultFormat", "VaultCrypto", "CLinux", system),
        library("ViewFormats", "FileSystem", "LinuxSystem", "StrictJSON", "VaultCrypto", "CLinux", system),
        library(
            "VaultFileSystem", "FileSystem", "Locking", "VaultStore", "LinuxSystem", "VaultFormat", "VaultCrypto",
            "CLinux", system),
        library(
            "ViewFileSystem", "FileSystem", "Locking", "ViewFormats", "LinuxSystem", "VaultCrypto", "CLinux", system,
            logging),
        library(
            "Transfer", "VaultFileSystem", "ViewFileSystem", "FileSystem", "VaultStore", "ViewFormats", "LinuxSystem",
            "VaultFormat", "VaultCrypto", "CLinux", system),
        library("FuseSession", "FileSystem", "Locking", "LinuxSystem", "CFuse", "CLinux", system, logging),
        library("Control", "Locking", "FileSystem", "LinuxSystem", "VaultFormat", "VaultCrypto", "CLinux", system),
        program(
            "vaultfs", "FuseSession", "VaultFileSystem", "ViewFileSystem", "FileSystem", "Locking", "Transfer",
            "Control", "VaultStore", "ViewFormats", "LinuxSystem", "VaultFormat", "VaultCrypto", "CBuild", "CLinux",
            system, logging, arguments),
        program(
            "null-server", path: "Benchmarks/NullServer", "FuseSession", "FileSystem", "Locking", "LinuxSystem",
            "VaultCrypto", "CLinux", system, logging, arguments),
        program("vaultfs-micro", path: "Benchmarks/Micro", "FileSystem", "VaultFormat", "VaultCrypto", arguments),
        .target(name: "CallWatch", path: "Tests/CallWatch"),
        .target(
            name: "TestSupport", dependencies: ["CallWatch", "CLinux"], path: "Tests/TestSupport",
            swiftSettings: settings),
        .target(
            name: "DiskSimulation", dependencies: ["CallWatch", "CLinux", "TestSupport"], path: "Tests/DiskSimulation",
            swiftSettings: settings),
        tests("LinuxSystemTests", "LinuxSystem", "TestSupport", system),
        tests("VaultCryptoTests", "VaultCrypto", "CLinux", "TestSupport"),
        tests("VaultFormatTests", "VaultFormat", "LinuxSystem", "VaultCrypto", "TestSupport"),
        tests("StrictJSONTests", "StrictJSON"),
        tests("FileSystemTests", "FileSystem", "LinuxSystem", "TestSupport"),
        tests("LockingTests", "Locking", "LinuxSystem", "CLinux", "TestSupport", system),
        tests(
            "VaultStoreTests", "VaultStore", "FileSystem", "LinuxSystem", "VaultFormat", "VaultCrypto", "CLinux",
            "TestSupport", system),
        tests(
            "VaultFileSystemTests", "VaultFileSystem", "FileSystem", "Locking", "VaultStore", "LinuxSystem",
            "VaultFormat", "VaultCrypto", "CLinux", "TestSupport", "DiskSimulation", system, logging),
        tests(
            "ViewFormatsTests", "ViewFormats", "FileSystem", "VaultStore", "LinuxSystem", "VaultCrypto", "TestSupport",
            system),
        tests(
            "ViewFileSystemTests", "ViewFileSystem", "ViewFormats", "FileSystem", "Locking", "LinuxSystem",
            "VaultCrypto", "TestSupport", system, logging),
        tests(
            "TransferTests", "vaultfs", "Transfer", "VaultFileSystem", "ViewFileSystem", "FileSystem", "Locking",
            "VaultStore", "ViewFormats", "LinuxSystem", "VaultFormat", "VaultCrypto", "CLinux", "TestSupport", system,
            logging),
        tests(
            "FuseSessionTests", "vaultfs", "FuseSession", "FileSystem", "Locking", "VaultFileSystem", "VaultStore",
            "LinuxSystem", "VaultFormat", "CLinux", "TestSupport", system, logging),
        tests(
            "ControlTests", "Control", "Locking", "FileSystem", "LinuxSystem", "VaultFormat", "VaultCrypto",
            "TestSupport", system),
        tests(
            "CommandLineTests", "vaultfs", "Control", "FileSystem", "Locking", "VaultStore", "VaultFormat",
            "VaultCrypto", "TestSupport", system, arguments),
        tests("MountTests", "vaultfs", "TestSupport"),
    ]
)
