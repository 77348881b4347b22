-- NICs and interfaces that each host was offered.
SELECT host, kind, device_index, name, any_value(port) AS port, any_value(link_layer) AS link_layer, any_value(bytes_per_s) AS rate_bytes_per_s,
       bool_or(gdr_capable) AS gdr_capable, any_value(address) AS address
FROM comm_net GROUP BY host, kind, device_index, name ORDER BY host, kind, device_index, name LIMIT 5000
