// The parts of libcrypto (OpenSSL 3.0) that VaultCrypto calls.
#pragma once
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

// An OSSL_PARAM keeps the addresses of its name and its value. Both are temporaries when Swift passes them. So the
// parameter lists are made here, where they outlive the call. All return 1 on success, as libcrypto does.

static inline int openssl_hmac_sha256_init(EVP_MAC_CTX *context, const void *key, size_t key_size) {
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_init(context, (const unsigned char *)key, key_size, params);
}

// An empty salt is left out: RFC 5869 then takes 32 zero bytes, which HMAC pads to the same key.
static inline int openssl_hkdf_sha256(
    EVP_KDF_CTX *context, const void *secret, size_t secret_size, const void *salt, size_t salt_size, const void *info,
    size_t info_size, void *out, size_t out_size) {
    OSSL_PARAM params[5], *next = params;
    *next++ = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0);
    *next++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret, secret_size);
    if (salt_size) *next++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)salt, salt_size);
    if (info_size) *next++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)info, info_size);
    *next = OSSL_PARAM_construct_end();
    return EVP_KDF_derive(context, (unsigned char *)out, out_size, params);
}

static inline int openssl_scrypt(
    EVP_KDF_CTX *context, const void *passphrase, size_t passphrase_size, const void *salt, size_t salt_size,
    uint64_t n, uint32_t r, uint32_t p, uint64_t max_memory, void *out, size_t out_size) {
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PASSWORD, (void *)passphrase, passphrase_size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)salt, salt_size),
        OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_N, &n),
        OSSL_PARAM_construct_uint32(OSSL_KDF_PARAM_SCRYPT_R, &r),
        OSSL_PARAM_construct_uint32(OSSL_KDF_PARAM_SCRYPT_P, &p),
        OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_MAXMEM, &max_memory),
        OSSL_PARAM_construct_end(),
    };
    return EVP_KDF_derive(context, (unsigned char *)out, out_size, params);
}
