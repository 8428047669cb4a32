internal import ArgumentParser
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The command line as text without loss. A path may have any bytes, but a `String` has only UTF-8.
///
/// In an argument of invalid UTF-8, or with one of these scalars, each byte outside ASCII becomes the scalar U+10FF00 +
/// byte, of a private use plane. The mapping is reversible.
enum ProcessArguments {
    private static let escapeBase: UInt32 = 0x10FF00

    /// The arguments after the program's name.
    static func current() -> [String] {
        var arguments = (1..<max(1, Int(CommandLine.argc))).compactMap { index in
            CommandLine.unsafeArgv[index].map { text(of: Array(UnsafeRawBufferPointer(start: $0, count: strlen($0)))) }
        }
        // Pass --no-mkdir, because mount(8) makes a mountpoint only if fstab(5) says X-mount.mkdir.
        if isMountHelper(arguments) { arguments = ["mount", "--quiet", "--no-mkdir"] + arguments }
        return arguments
    }

    /// Returns true for a call by mount(8) and mount.fuse3(8): `vaultfs SOURCE MOUNTPOINT -o OPTIONS`. The source has a
    /// slash, unlike any command, and the options are always there.
    static func isMountHelper(_ arguments: [String]) -> Bool {
        guard arguments.count >= 4, let source = arguments.first else { return false }
        return source.contains("/") && !source.hasPrefix("-") && arguments[2] == "-o"
    }

    static func text(of bytes: [UInt8]) -> String {
        if let text = String(validating: bytes, as: UTF8.self), !text.unicodeScalars.contains(where: isEscape) {
            return text
        }
        let scalars = bytes.compactMap { Unicode.Scalar($0 < 0x80 ? UInt32($0) : escapeBase + UInt32($0)) }
        return String(String.UnicodeScalarView(scalars))
    }

    static func bytes(of text: String) -> [UInt8] {
        text.unicodeScalars.flatMap { scalar in
            isEscape(scalar) ? [UInt8(scalar.value - escapeBase)] : Array(String(scalar).utf8)
        }
    }

    private static func isEscape(_ scalar: Unicode.Scalar) -> Bool { scalar.value >= escapeBase }
}

/// A path on the command line, of any bytes.
struct PathArgument {
    var path: FilePath
    /// True for a slash at the end, which `FilePath` drops.
    var endsWithSlash = false
}

extension PathArgument: ExpressibleByArgument {
    init?(argument: String) {
        let bytes = ProcessArguments.bytes(of: argument)
        guard !bytes.isEmpty, !bytes.contains(0), !Self.isUnexpanded(argument) else { return nil }
        self.init(path: FilePath(bytes: bytes), endsWithSlash: bytes.last == UInt8(ascii: "/"))
    }

    /// Returns true for a home directory's `~`, which a shell leaves as it is in `--lock-file=~/x` and between quotes.
    /// The path would lie in the working directory, which surprises the user.
    static func isUnexpanded(_ argument: String) -> Bool { argument == "~" || argument.hasPrefix("~/") }

    static var defaultCompletionKind: CompletionKind { .file() }
}
