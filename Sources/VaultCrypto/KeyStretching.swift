internal import COpenSSL

/// HKDF-SHA256 (RFC 5869), extract and expand.
package enum Hkdf {
    package static func derive(
        secret: SecretBytes, salt: [UInt8], info: String, count: Int
    ) throws(CryptoError) -> SecretBytes {
        try deriveKey(try Algorithms.get().hkdf, count: count, secret: secret, secretName: "key") { builder in
            builder.text("digest", "SHA256")
            builder.octets("salt", salt)
            builder.octets("info", Array(info.utf8))
        }
    }
}

/// scrypt (RFC 7914).
package enum Scrypt {
    /// - Throws: `.invalidInput` for parameters that need over 1 GiB.
    package static func derive(
        passphrase: SecretBytes, salt: [UInt8], logN: Int, r: Int, p: Int, count: Int
    ) throws(CryptoError) -> SecretBytes {
        guard 1...22 ~= logN, 1...32 ~= r, 1...16 ~= p else { throw .invalidInput("scrypt parameters out of bounds") }
        let memory = UInt64(128) * UInt64(r) << UInt64(logN)
        guard memory <= 1 << 30 else { throw .invalidInput("scrypt would take over 1 GiB") }
        return try deriveKey(try Algorithms.get().scrypt, count: count, secret: passphrase, secretName: "pass") {
            builder in
            builder.octets("salt", salt)
            builder.integer("n", 1 << UInt64(logN))
            builder.integer("r", UInt64(r))
            builder.integer("p", UInt64(p))
            // libcrypto's own bound (32 MiB) is below what a good passphrase slot takes; p blocks come on top.
            builder.integer("maxmem_bytes", memory + UInt64(128 * r * (p + 2)) + (1 << 20))
        }
    }
}

/// Owns the memory that OSSL_PARAMs point to.
private final class ParameterBuilder {
    private var storage: [UnsafeMutableRawBufferPointer] = []
    private(set) var parameters: [OSSL_PARAM] = []

    deinit {
        for memory in storage {
            cleanse(memory)
            memory.deallocate()
        }
    }

    private func keep(_ bytes: UnsafeRawBufferPointer) -> UnsafeMutableRawBufferPointer {
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: max(bytes.count, 8), alignment: 8)
        memory.copyMemory(from: bytes)
        storage.append(memory)
        return memory
    }

    private func name(_ name: StaticString) -> UnsafePointer<CChar> {
        UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
    }

    func text(_ key: StaticString, _ value: StaticString) {
        let size = value.utf8CodeUnitCount
        let memory = keep(UnsafeRawBufferPointer(start: value.utf8Start, count: size + 1))
        parameters.append(
            OSSL_PARAM_construct_utf8_string(name(key), memory.baseAddress?.assumingMemoryBound(to: CChar.self), size))
    }

    func octets(_ key: StaticString, _ value: [UInt8]) {
        let memory = value.withUnsafeBytes { keep($0) }
        parameters.append(OSSL_PARAM_construct_octet_string(name(key), memory.baseAddress, value.count))
    }

    func integer(_ key: StaticString, _ value: UInt64) {
        let memory = withUnsafeBytes(of: value) { keep($0) }
        parameters.append(
            OSSL_PARAM_construct_uint64(name(key), memory.baseAddress?.assumingMemoryBound(to: UInt64.self)))
    }

    func secret(_ key: StaticString, _ bytes: UnsafeRawBufferPointer) {
        // libcrypto copies it; until then it is read where it lies.
        parameters.append(
            OSSL_PARAM_construct_octet_string(name(key), UnsafeMutableRawPointer(mutating: bytes.baseAddress), bytes.count))
    }

    func end() { parameters.append(OSSL_PARAM_construct_end()) }
}

private func deriveKey(
    _ algorithm: OpaquePointer, count: Int, secret: SecretBytes, secretName: StaticString,
    _ describe: (ParameterBuilder) -> Void
) throws(CryptoError) -> SecretBytes {
    guard let context = EVP_KDF_CTX_new(algorithm) else { throw .library(operation: "EVP_KDF_CTX_new") }
    defer { EVP_KDF_CTX_free(context) }
    let builder = ParameterBuilder()
    describe(builder)
    return try SecretBytes(count: count) { (output) throws(CryptoError) in
        try secret.withUnsafeBytes { (secret) throws(CryptoError) in
            builder.secret(secretName, secret)
            builder.end()
            let derived = EVP_KDF_derive(
                context, output.baseAddress?.assumingMemoryBound(to: UInt8.self), output.count, builder.parameters)
            try check(derived, "EVP_KDF_derive")
        }
    }
}
