internal import ArgumentParser
internal import Glibc
internal import SystemPackage

/// The command line as text that loses nothing: a path may hold any bytes, `String` only UTF-8.
///
/// A byte that is not part of valid UTF-8 becomes the scalar U+10FF00 + byte, of a private use plane; so does each byte
/// of such a scalar that stands in the arguments itself. The mapping can be undone exactly.
enum ProcessArguments {
    private static let escapeBase: UInt32 = 0x10FF00

    /// The arguments after the program's name.
    static func current() -> [String] {
        var arguments = (1..<max(1, Int(CommandLine.argc))).compactMap { index in
            CommandLine.unsafeArgv[index].map { text(of: UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
        }
        if isMountHelper(arguments) { arguments.insert("mount", at: 0) }
        return arguments
    }

    /// Whether mount(8) calls, by way of mount.fuse3(8): `vaultfs SOURCE MOUNTPOINT -o OPTIONS`, without a command, of which
    /// none has a slash.
    static func isMountHelper(_ arguments: [String]) -> Bool {
        guard arguments.count >= 2, let source = arguments.first else { return false }
        return source.contains("/") && !source.hasPrefix("-")
    }

    static func text(of bytes: some Sequence<UInt8>) -> String {
        let bytes = Array(bytes)
        var scalars = String.UnicodeScalarView()
        var rest = bytes[...]
        while !rest.isEmpty {
            let (scalar, length) = firstScalar(of: rest)
            if let scalar, scalar.value < escapeBase {
                scalars.append(scalar)
            } else {
                scalars.append(contentsOf: rest.prefix(length).compactMap { Unicode.Scalar(escapeBase + UInt32($0)) })
            }
            rest = rest.dropFirst(length)
        }
        return String(scalars)
    }

    static func bytes(of text: String) -> [UInt8] {
        text.unicodeScalars.flatMap { scalar in
            scalar.value >= escapeBase ? [UInt8(scalar.value - escapeBase)] : Array(String(scalar).utf8)
        }
    }

    private static func firstScalar(of bytes: ArraySlice<UInt8>) -> (scalar: Unicode.Scalar?, length: Int) {
        var parser = Unicode.UTF8.ForwardParser()
        var iterator = bytes.makeIterator()
        switch parser.parseScalar(from: &iterator) {
        case .valid(let encoded): return (Unicode.UTF8.decode(encoded), encoded.count)
        case .error(let length): return (nil, length)
        case .emptyInput: return (nil, 1)
        }
    }
}

/// A path on the command line: bytes.
struct PathArgument: ExpressibleByArgument {
    let path: FilePath

    init?(argument: String) {
        let bytes = ProcessArguments.bytes(of: argument)
        guard !bytes.isEmpty, !bytes.contains(0) else { return nil }
        path = FilePath(bytes: bytes)
    }

    init(path: FilePath) {
        self.path = path
    }

    static var defaultCompletionKind: CompletionKind { .file() }
}

extension FilePath {
    init(bytes: [UInt8]) {
        self = (bytes + [0]).withUnsafeBufferPointer { buffer in
            buffer.withMemoryRebound(to: CChar.self) { FilePath(platformString: Array($0)) }
        }
    }

    /// The path's bytes, without a NUL.
    var bytes: [UInt8] {
        withPlatformString { Array(UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
    }
}
