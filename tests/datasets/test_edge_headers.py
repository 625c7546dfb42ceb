import pytest

from gnnflow.datasets.edge_headers import find_ends, find_time, find_types, find_weight


@pytest.mark.parametrize(
    ("header", "ends"),
    [
        ("dst,src", ("src", "dst")),
        ("Source,Target,Type,Id,Label,Weight", ("Source", "Target")),
        ("FromNodeId,ToNodeId", ("FromNodeId", "ToNodeId")),
        ("step,type,amount,nameOrig,newbalanceOrig,nameDest,newbalanceDest", ("nameOrig", "nameDest")),
        ("transaction_id,sender_id,receiver_id", ("sender_id", "receiver_id")),
        ("src_ip,src_port,dst_ip,dst_port", ("src_ip", "dst_ip")),
        ("from account,to account,from_date,to_date", ("from account", "to account")),
        ("src,dst,start,end", ("src", "dst")),
        ("head,relation,tail", ("head", "tail")),
        ("id_1,id_2", ("id_1", "id_2")),
        ("protein1,protein2,score", ("protein1", "protein2")),
        ("a,b", ("a", "b")),
        ("USERID,ITEMID,paid", ("USERID", "ITEMID")),
        ("user_id,film_id,start,end", ("user_id", "film_id")),
        ("From Bank,Account,To Bank,Account.1", None),
        ("account,from_date,to_date", None),
        ("order_id,user_id,product_id", None),
        ("id,parent_id", None),
        ("id,feature1,feature2", None),
        ("x,y,z", None),
        ("user,movie", None),
    ],
)
def test_ends_are_found_where_names_say_them(header, ends):
    assert find_ends(header.split(",")) == ends


@pytest.mark.parametrize(
    ("src", "dst", "types"),
    [
        ("src", "dst", ("", "")),
        ("from_account", "to_account", ("", "")),
        ("user_id_1", "user_id_2", ("", "")),
        ("Account", "Account.1", ("", "")),
        ("a", "b", ("", "")),
        ("userId", "movieId", ("user", "movie")),
        ("from_user", "to_item", ("user", "item")),
        ("customer account id", "shop", ("customer_account", "shop")),
        ("person", "friend", None),
        ("id", "movieId", None),
    ],
)
def test_types_are_what_names_say(src, dst, types):
    assert find_types(src, dst) == types


def test_weight_and_time_are_found_by_name_where_one_column_has_it():
    assert find_weight(["W", "Edge Weight"]) == "Edge Weight"
    assert find_weight(["Weight", "weight"]) == "weight"
    assert find_weight(["Weight", "WEIGHT"]) is None
    assert find_time(["unixTime"]) == "unixTime"
    assert find_time(["date", "time"]) is None
